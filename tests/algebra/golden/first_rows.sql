-- SELECT a, b, c, d, x FROM r ORDER BY b DESC, a, c, d, x LIMIT 3 OFFSET 1

-- @: first rows, key _hw_key_1, changes paired
SELECT
  `a`,
  `b`,
  `c`,
  `d`,
  `x`,
  `_hw_key_1`,
  `_hw_order_1`,
  `_hw_order_2`,
  `_hw_order_3`,
  `_hw_order_4`,
  `_hw_order_5`,
  `_hw_shown`,
  `_hw_old_a`,
  `_hw_old_b`,
  `_hw_old_c`,
  `_hw_old_d`,
  `_hw_old_x`,
  `_hw_old__hw_key_1`,
  `_hw_old__hw_order_1`,
  `_hw_old__hw_order_2`,
  `_hw_old__hw_order_3`,
  `_hw_old__hw_order_4`,
  `_hw_old__hw_order_5`,
  `_hw_old__hw_shown`,
  `_hw_file`,
  `_hw_position`,
  `_hw_row`,
  `_hw_is`,
  `_hw_was`,
  `_hw_side__hw_key_1__hw_old_a`
FROM (
  SELECT
    `a` AS `a`,
    `b` AS `b`,
    `c` AS `c`,
    `d` AS `d`,
    `x` AS `x`,
    `_hw_key_1` AS `_hw_key_1`,
    `_hw_order_1` AS `_hw_order_1`,
    `_hw_order_2` AS `_hw_order_2`,
    `_hw_order_3` AS `_hw_order_3`,
    `_hw_order_4` AS `_hw_order_4`,
    `_hw_order_5` AS `_hw_order_5`,
    `_hw_shown` AS `_hw_shown`,
    `_hw_old_a` AS `_hw_old_a`,
    `_hw_old_b` AS `_hw_old_b`,
    `_hw_old_c` AS `_hw_old_c`,
    `_hw_old_d` AS `_hw_old_d`,
    `_hw_old_x` AS `_hw_old_x`,
    `_hw_old__hw_key_1` AS `_hw_old__hw_key_1`,
    `_hw_old__hw_order_1` AS `_hw_old__hw_order_1`,
    `_hw_old__hw_order_2` AS `_hw_old__hw_order_2`,
    `_hw_old__hw_order_3` AS `_hw_old__hw_order_3`,
    `_hw_old__hw_order_4` AS `_hw_old__hw_order_4`,
    `_hw_old__hw_order_5` AS `_hw_old__hw_order_5`,
    `_hw_old__hw_shown` AS `_hw_old__hw_shown`,
    `_hw_file` AS `_hw_file`,
    `_hw_position` AS `_hw_position`,
    `_hw_row` AS `_hw_row`,
    COALESCE(`_hw_is_now`, FALSE) AS `_hw_is`,
    NOT `_hw_row` IS NULL AS `_hw_was`,
    `_hw_side__hw_key_1__hw_old_a`
  FROM (
    SELECT
      `a`,
      `b`,
      `c`,
      `d`,
      `x`,
      `_hw_key_1`,
      `_hw_order_1`,
      `_hw_order_2`,
      `_hw_order_3`,
      `_hw_order_4`,
      `_hw_order_5`,
      `_hw_shown`,
      `_hw_is_now`,
      `_hw_old_a`,
      `_hw_old_b`,
      `_hw_old_c`,
      `_hw_old_d`,
      `_hw_old_x`,
      `_hw_old__hw_key_1`,
      `_hw_old__hw_order_1`,
      `_hw_old__hw_order_2`,
      `_hw_old__hw_order_3`,
      `_hw_old__hw_order_4`,
      `_hw_old__hw_order_5`,
      `_hw_old__hw_shown`,
      `_hw_file`,
      `_hw_position`,
      `_hw_row`,
      CASE WHEN `_hw_in_left` IS NULL THEN 2 WHEN `_hw_in_right` IS NULL THEN 1 ELSE 0 END AS `_hw_side__hw_key_1__hw_old_a`
    FROM (
      SELECT
        `a`,
        `b`,
        `c`,
        `d`,
        `x`,
        `_hw_key_1`,
        `_hw_order_1`,
        `_hw_order_2`,
        `_hw_order_3`,
        `_hw_order_4`,
        `_hw_order_5`,
        `_hw_shown`,
        `_hw_is_now`,
        TRUE AS `_hw_in_left`
      FROM (
        SELECT
          `a` AS `a`,
          `b` AS `b`,
          `c` AS `c`,
          `d` AS `d`,
          `x` AS `x`,
          `_hw_key_1` AS `_hw_key_1`,
          `_hw_order_1` AS `_hw_order_1`,
          `_hw_order_2` AS `_hw_order_2`,
          `_hw_order_3` AS `_hw_order_3`,
          `_hw_order_4` AS `_hw_order_4`,
          `_hw_order_5` AS `_hw_order_5`,
          `_hw_shown` AS `_hw_shown`,
          TRUE AS `_hw_is_now`
        FROM (
          SELECT
            `a` AS `a`,
            `b` AS `b`,
            `c` AS `c`,
            `d` AS `d`,
            `x` AS `x`,
            `_hw_key_1` AS `_hw_key_1`,
            `_hw_order_1` AS `_hw_order_1`,
            `_hw_order_2` AS `_hw_order_2`,
            `_hw_order_3` AS `_hw_order_3`,
            `_hw_order_4` AS `_hw_order_4`,
            `_hw_order_5` AS `_hw_order_5`,
            `_hw_rank` > 1 AND `_hw_rank` <= 4 AS `_hw_shown`
          FROM (
            SELECT
              `a`,
              `b`,
              `c`,
              `d`,
              `x`,
              `_hw_key_1`,
              `_hw_order_1`,
              `_hw_order_2`,
              `_hw_order_3`,
              `_hw_order_4`,
              `_hw_order_5`,
              ROW_NUMBER() OVER (
                ORDER BY `_hw_order_1` DESC, `_hw_order_2`, `_hw_order_3`, `_hw_order_4`, `_hw_order_5`, `_hw_key_1` NULLS LAST
              ) AS `_hw_rank`
            FROM (
              SELECT
                `a` AS `a`,
                `b` AS `b`,
                `c` AS `c`,
                `d` AS `d`,
                `x` AS `x`,
                `_hw_key_1` AS `_hw_key_1`,
                `_hw_order_1` AS `_hw_order_1`,
                `_hw_order_2` AS `_hw_order_2`,
                `_hw_order_3` AS `_hw_order_3`,
                `_hw_order_4` AS `_hw_order_4`,
                `_hw_order_5` AS `_hw_order_5`
              FROM (
                SELECT
                  `a`,
                  `b`,
                  `c`,
                  `d`,
                  `x`,
                  `_hw_key_1`,
                  `_hw_order_1`,
                  `_hw_order_2`,
                  `_hw_order_3`,
                  `_hw_order_4`,
                  `_hw_order_5`,
                  `_hw_new`,
                  `_hw_place`,
                  `_hw_last`
                FROM (
                  SELECT
                    `a`,
                    `b`,
                    `c`,
                    `d`,
                    `x`,
                    `_hw_key_1`,
                    `_hw_order_1`,
                    `_hw_order_2`,
                    `_hw_order_3`,
                    `_hw_order_4`,
                    `_hw_order_5`,
                    `_hw_new`,
                    `_hw_place`,
                    MAX(CASE WHEN `_hw_new` = 0 THEN `_hw_place` END) OVER () AS `_hw_last`
                  FROM (
                    SELECT
                      `a`,
                      `b`,
                      `c`,
                      `d`,
                      `x`,
                      `_hw_key_1`,
                      `_hw_order_1`,
                      `_hw_order_2`,
                      `_hw_order_3`,
                      `_hw_order_4`,
                      `_hw_order_5`,
                      `_hw_new`,
                      ROW_NUMBER() OVER (
                        ORDER BY `_hw_order_1` DESC, `_hw_order_2`, `_hw_order_3`, `_hw_order_4`, `_hw_order_5`, `_hw_key_1` NULLS LAST
                      ) AS `_hw_place`
                    FROM (
                      SELECT
                        `a`,
                        `b`,
                        `c`,
                        `d`,
                        `x`,
                        `_hw_key_1`,
                        `_hw_order_1`,
                        `_hw_order_2`,
                        `_hw_order_3`,
                        `_hw_order_4`,
                        `_hw_order_5`,
                        `_hw_new`
                      FROM (
                        SELECT
                          `a` AS `a`,
                          `b` AS `b`,
                          `c` AS `c`,
                          `d` AS `d`,
                          `x` AS `x`,
                          `_hw_key_1` AS `_hw_key_1`,
                          `_hw_order_1` AS `_hw_order_1`,
                          `_hw_order_2` AS `_hw_order_2`,
                          `_hw_order_3` AS `_hw_order_3`,
                          `_hw_order_4` AS `_hw_order_4`,
                          `_hw_order_5` AS `_hw_order_5`,
                          0 AS `_hw_new`
                        FROM (
                          SELECT
                            _l.`a`,
                            _l.`b`,
                            _l.`c`,
                            _l.`d`,
                            _l.`x`,
                            _l.`_hw_key_1`,
                            _l.`_hw_order_1`,
                            _l.`_hw_order_2`,
                            _l.`_hw_order_3`,
                            _l.`_hw_order_4`,
                            _l.`_hw_order_5`
                          FROM (
                            SELECT
                              `a` AS `a`,
                              `b` AS `b`,
                              `c` AS `c`,
                              `d` AS `d`,
                              `x` AS `x`,
                              `_hw_key_1` AS `_hw_key_1`,
                              `_hw_order_1` AS `_hw_order_1`,
                              `_hw_order_2` AS `_hw_order_2`,
                              `_hw_order_3` AS `_hw_order_3`,
                              `_hw_order_4` AS `_hw_order_4`,
                              `_hw_order_5` AS `_hw_order_5`
                            FROM `@@old`
                          ) AS _l
                          LEFT ANTI JOIN (
                            SELECT
                              `_hw_key_1` AS `_hw_gone__hw_key_1`
                            FROM (
                              SELECT
                                `a`,
                                `b`,
                                `c`,
                                `d`,
                                `x`,
                                `_hw_key_1`,
                                `_hw_order_1`,
                                `_hw_order_2`,
                                `_hw_order_3`,
                                `_hw_order_4`,
                                `_hw_order_5`
                              FROM (
                                SELECT
                                  `a`,
                                  `b`,
                                  `c`,
                                  `d`,
                                  `x`,
                                  `_hw_key_1`,
                                  `_hw_order_1`,
                                  `_hw_order_2`,
                                  `_hw_order_3`,
                                  `_hw_order_4`,
                                  `_hw_order_5`,
                                  CAST(SUM(`_hw_w`) AS INT) AS `_hw_w`
                                FROM (
                                  SELECT
                                    `a` AS `a`,
                                    `b` AS `b`,
                                    `c` AS `c`,
                                    `d` AS `d`,
                                    `x` AS `x`,
                                    `r_rowid` AS `_hw_key_1`,
                                    `b` AS `_hw_order_1`,
                                    `a` AS `_hw_order_2`,
                                    `c` AS `_hw_order_3`,
                                    `d` AS `_hw_order_4`,
                                    `x` AS `_hw_order_5`,
                                    `_hw_w`
                                  FROM (
                                    SELECT
                                      `a` AS `a`,
                                      `b` AS `b`,
                                      `c` AS `c`,
                                      `d` AS `d`,
                                      `x` AS `x`,
                                      `rowid` AS `r_rowid`,
                                      `_hw_w`
                                    FROM `r@delta`
                                  ) AS _t
                                ) AS _t
                                GROUP BY
                                  `a`,
                                  `b`,
                                  `c`,
                                  `d`,
                                  `x`,
                                  `_hw_key_1`,
                                  `_hw_order_1`,
                                  `_hw_order_2`,
                                  `_hw_order_3`,
                                  `_hw_order_4`,
                                  `_hw_order_5`
                                HAVING
                                  SUM(`_hw_w`) <> 0
                              ) AS _t
                              WHERE
                                `_hw_w` < 0
                            ) AS _t
                          ) AS _r
                            ON `_hw_key_1` IS NOT DISTINCT FROM `_hw_gone__hw_key_1`
                        ) AS _t
                      ) AS _t
                      UNION ALL
                      SELECT
                        `a`,
                        `b`,
                        `c`,
                        `d`,
                        `x`,
                        `_hw_key_1`,
                        `_hw_order_1`,
                        `_hw_order_2`,
                        `_hw_order_3`,
                        `_hw_order_4`,
                        `_hw_order_5`,
                        `_hw_new`
                      FROM (
                        SELECT
                          `a` AS `a`,
                          `b` AS `b`,
                          `c` AS `c`,
                          `d` AS `d`,
                          `x` AS `x`,
                          `_hw_key_1` AS `_hw_key_1`,
                          `_hw_order_1` AS `_hw_order_1`,
                          `_hw_order_2` AS `_hw_order_2`,
                          `_hw_order_3` AS `_hw_order_3`,
                          `_hw_order_4` AS `_hw_order_4`,
                          `_hw_order_5` AS `_hw_order_5`,
                          1 AS `_hw_new`
                        FROM (
                          SELECT
                            `a`,
                            `b`,
                            `c`,
                            `d`,
                            `x`,
                            `_hw_key_1`,
                            `_hw_order_1`,
                            `_hw_order_2`,
                            `_hw_order_3`,
                            `_hw_order_4`,
                            `_hw_order_5`
                          FROM (
                            SELECT
                              `a`,
                              `b`,
                              `c`,
                              `d`,
                              `x`,
                              `_hw_key_1`,
                              `_hw_order_1`,
                              `_hw_order_2`,
                              `_hw_order_3`,
                              `_hw_order_4`,
                              `_hw_order_5`,
                              CAST(SUM(`_hw_w`) AS INT) AS `_hw_w`
                            FROM (
                              SELECT
                                `a` AS `a`,
                                `b` AS `b`,
                                `c` AS `c`,
                                `d` AS `d`,
                                `x` AS `x`,
                                `r_rowid` AS `_hw_key_1`,
                                `b` AS `_hw_order_1`,
                                `a` AS `_hw_order_2`,
                                `c` AS `_hw_order_3`,
                                `d` AS `_hw_order_4`,
                                `x` AS `_hw_order_5`,
                                `_hw_w`
                              FROM (
                                SELECT
                                  `a` AS `a`,
                                  `b` AS `b`,
                                  `c` AS `c`,
                                  `d` AS `d`,
                                  `x` AS `x`,
                                  `rowid` AS `r_rowid`,
                                  `_hw_w`
                                FROM `r@delta`
                              ) AS _t
                            ) AS _t
                            GROUP BY
                              `a`,
                              `b`,
                              `c`,
                              `d`,
                              `x`,
                              `_hw_key_1`,
                              `_hw_order_1`,
                              `_hw_order_2`,
                              `_hw_order_3`,
                              `_hw_order_4`,
                              `_hw_order_5`
                            HAVING
                              SUM(`_hw_w`) <> 0
                          ) AS _t
                          WHERE
                            `_hw_w` > 0
                        ) AS _t
                      ) AS _t
                    ) AS _t
                  ) AS _t
                ) AS _t
                WHERE
                  `_hw_place` <= `_hw_last` AND `_hw_place` <= 1004
              ) AS _t
            ) AS _t
          ) AS _t
        ) AS _t
      ) AS _t
    ) AS _l
    FULL JOIN (
      SELECT
        `_hw_old_a`,
        `_hw_old_b`,
        `_hw_old_c`,
        `_hw_old_d`,
        `_hw_old_x`,
        `_hw_old__hw_key_1`,
        `_hw_old__hw_order_1`,
        `_hw_old__hw_order_2`,
        `_hw_old__hw_order_3`,
        `_hw_old__hw_order_4`,
        `_hw_old__hw_order_5`,
        `_hw_old__hw_shown`,
        `_hw_file`,
        `_hw_position`,
        `_hw_row`,
        TRUE AS `_hw_in_right`
      FROM (
        SELECT
          `a` AS `_hw_old_a`,
          `b` AS `_hw_old_b`,
          `c` AS `_hw_old_c`,
          `d` AS `_hw_old_d`,
          `x` AS `_hw_old_x`,
          `_hw_key_1` AS `_hw_old__hw_key_1`,
          `_hw_order_1` AS `_hw_old__hw_order_1`,
          `_hw_order_2` AS `_hw_old__hw_order_2`,
          `_hw_order_3` AS `_hw_old__hw_order_3`,
          `_hw_order_4` AS `_hw_old__hw_order_4`,
          `_hw_order_5` AS `_hw_old__hw_order_5`,
          `_hw_shown` AS `_hw_old__hw_shown`,
          `_hw_file` AS `_hw_file`,
          `_hw_position` AS `_hw_position`,
          `_hw_row` AS `_hw_row`
        FROM `@@old`
      ) AS _t
    ) AS _r
      ON `_hw_key_1` IS NOT DISTINCT FROM `_hw_old__hw_key_1`
  ) AS _t
) AS _t
WHERE
  (
    `_hw_is` OR `_hw_was`
  )
  AND (
    NOT (
      (
        `_hw_is` AND `_hw_was`
      )
      AND (
        `a` IS NOT DISTINCT FROM `_hw_old_a`
        AND `b` IS NOT DISTINCT FROM `_hw_old_b`
        AND `c` IS NOT DISTINCT FROM `_hw_old_c`
        AND `d` IS NOT DISTINCT FROM `_hw_old_d`
        AND `x` IS NOT DISTINCT FROM `_hw_old_x`
        AND `_hw_key_1` IS NOT DISTINCT FROM `_hw_old__hw_key_1`
        AND `_hw_order_1` IS NOT DISTINCT FROM `_hw_old__hw_order_1`
        AND `_hw_order_2` IS NOT DISTINCT FROM `_hw_old__hw_order_2`
        AND `_hw_order_3` IS NOT DISTINCT FROM `_hw_old__hw_order_3`
        AND `_hw_order_4` IS NOT DISTINCT FROM `_hw_old__hw_order_4`
        AND `_hw_order_5` IS NOT DISTINCT FROM `_hw_old__hw_order_5`
        AND `_hw_shown` IS NOT DISTINCT FROM `_hw_old__hw_shown`
      )
    )
  )
